import django.db.models.deletion
from django.db import migrations, models

OPEN = ["approved", "applying", "failed", "paused", "pending", "rolling_back"]


def hold_pools_of_open_changes(apps, schema_editor):
    """Let every change that is under way hold its pool as new ones do; at most one is open per pool."""
    changes = apps.get_model("gpupools", "ModeChange").objects.filter(state__in=OPEN)
    holds = apps.get_model("gpupools", "PoolHold").objects
    for change in changes.only("pk", "pool_id").iterator():
        holds.get_or_create(pool_id=change.pool_id, defaults={"change_id": change.pk})


class Migration(migrations.Migration):
    dependencies = [
        ("gpupools", "0002_batches_and_moves"),
    ]

    operations = [
        migrations.CreateModel(
            name="PoolHold",
            fields=[
                (
                    "pool",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="hold",
                        serialize=False,
                        to="gpupools.nodepool",
                    ),
                ),
                (
                    "change",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="holds", to="gpupools.modechange"
                    ),
                ),
            ],
        ),
        migrations.RunPython(hold_pools_of_open_changes, migrations.RunPython.noop),
    ]
