"""What the identity of a cluster leaves of the console, and whether it is the console's own service account."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Two columns with defaults: rows of before are asked again at the next probe."""

    dependencies = [("gpupools", "0005_notices")]

    operations = [
        migrations.AddField(
            model_name="cluster",
            name="abilities",
            field=models.JSONField(
                default=list, help_text="What the identity leaves of the console: code, title, allowed, missing rights."
            ),
        ),
        migrations.AddField(
            model_name="cluster",
            name="in_cluster",
            field=models.BooleanField(default=False, help_text="Reached by the console's own service account."),
        ),
    ]
