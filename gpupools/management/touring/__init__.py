"""The main job of the console, headless, through its REST API: what `manage.py tour` does, step by step."""
