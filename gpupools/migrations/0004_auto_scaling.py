from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("gpupools", "0003_pool_holds"),
    ]

    operations = [
        migrations.AddField(
            model_name="nodepool",
            name="auto_scaling",
            field=models.JSONField(default=dict, help_text="On ACK: {enable, min_instances, max_instances, type}."),
        ),
        migrations.AddField(
            model_name="nodepool",
            name="cpu_policy",
            field=models.CharField(blank=True, help_text="The kubelet's, where the provider says it.", max_length=16),
        ),
    ]
