from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("gpupools", "0007_operation_requests"),
    ]

    operations = [
        migrations.AddField(
            model_name="idempotencykey",
            name="location",
            field=models.CharField(blank=True, help_text="Where what it made is, where it said so.", max_length=200),
        ),
    ]
