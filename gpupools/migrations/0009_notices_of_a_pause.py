from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("gpupools", "0008_answers_say_where"),
    ]

    operations = [
        migrations.AlterField(
            model_name="notice",
            name="kind",
            field=models.CharField(
                choices=[
                    ("waiting", "A decision is waited for"),
                    ("failed", "It failed"),
                    ("paused", "It is paused"),
                    ("person", "A step waits for a person"),
                ],
                max_length=8,
            ),
        ),
    ]
