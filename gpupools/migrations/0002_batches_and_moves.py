import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("gpupools", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="changestep",
            name="confirmed_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="changestep",
            name="confirmed_by",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddField(
            model_name="changestep",
            name="expected_seconds",
            field=models.PositiveIntegerField(default=0),
        ),
        migrations.AddField(
            model_name="changestep",
            name="is_rollback",
            field=models.BooleanField(default=False),
        ),
        migrations.AddField(
            model_name="changestep",
            name="node_names",
            field=models.JSONField(default=list, help_text="The nodes of its batch; empty: all."),
        ),
        migrations.AddField(
            model_name="changestep",
            name="waiting_since",
            field=models.DateTimeField(blank=True, help_text="Since when it waits for what it says.", null=True),
        ),
        migrations.AddField(
            model_name="changestep",
            name="wave",
            field=models.PositiveSmallIntegerField(default=0, help_text="Which batch it belongs to; 0: all nodes."),
        ),
        migrations.AddField(
            model_name="modechange",
            name="batch_size",
            field=models.PositiveSmallIntegerField(default=0, help_text="Nodes per batch; 0: all at once."),
        ),
        migrations.AddField(
            model_name="modechange",
            name="node_names",
            field=models.JSONField(default=list, help_text="The nodes concerned; empty: all of the pool."),
        ),
        migrations.AddField(
            model_name="modechange",
            name="outlook",
            field=models.JSONField(
                default=dict, help_text="Cards before and after, and what pending pods gain or lose."
            ),
        ),
        migrations.AddField(
            model_name="modechange",
            name="rule",
            field=models.CharField(blank=True, help_text="Why no second person had to decide.", max_length=200),
        ),
        migrations.AddField(
            model_name="modechange",
            name="target_pool",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="incoming_changes",
                to="gpupools.nodepool",
            ),
        ),
        migrations.AddField(
            model_name="modechange",
            name="undoes",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="undone_by",
                to="gpupools.modechange",
            ),
        ),
        migrations.AddField(
            model_name="modechange",
            name="way",
            field=models.CharField(
                choices=[
                    ("whole", "The whole pool at once"),
                    ("batches", "A few nodes at a time"),
                    ("move", "Move nodes into another pool"),
                    ("join", "Take nodes into this pool"),
                ],
                default="whole",
                max_length=8,
            ),
        ),
        migrations.AlterField(
            model_name="changestep",
            name="state",
            field=models.CharField(
                choices=[
                    ("waiting", "Not started"),
                    ("running", "Running"),
                    ("done", "Done"),
                    ("failed", "Failed"),
                    ("skipped", "Not carried out"),
                ],
                default="waiting",
                max_length=16,
            ),
        ),
    ]
