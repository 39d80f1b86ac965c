"""The only code that talks to clusters; it returns domain values and knows no rows."""
