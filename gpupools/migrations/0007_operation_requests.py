import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("gpupools", "0006_cluster_abilities"),
    ]

    operations = [
        migrations.AlterField(
            model_name="notice",
            name="change",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="notices",
                to="gpupools.modechange",
            ),
        ),
        migrations.AlterField(
            model_name="notice",
            name="kind",
            field=models.CharField(
                choices=[("waiting", "A decision is waited for"), ("failed", "It failed")], max_length=8
            ),
        ),
        migrations.CreateModel(
            name="OperationRequest",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("forced-delete", "forced-delete"),
                            ("size-0", "size-0"),
                            ("component-uninstall", "component-uninstall"),
                            ("mps-upgrade", "mps-upgrade"),
                        ],
                        max_length=24,
                    ),
                ),
                ("component", models.CharField(blank=True, max_length=64)),
                (
                    "target",
                    models.CharField(help_text="The name of the pool or component, kept as text.", max_length=64),
                ),
                ("params", models.JSONField(default=dict)),
                ("diff", models.JSONField(default=list)),
                ("blast_radius", models.JSONField(default=dict)),
                ("warnings", models.JSONField(default=list)),
                ("facts", models.JSONField(default=dict)),
                ("fingerprint", models.CharField(max_length=64)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("pending", "pending"),
                            ("approved", "approved"),
                            ("rejected", "rejected"),
                            ("withdrawn", "withdrawn"),
                            ("expired", "expired"),
                            ("lapsed", "lapsed"),
                        ],
                        default="pending",
                        max_length=16,
                    ),
                ),
                ("reason", models.TextField()),
                ("requested_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
                ("decided_at", models.DateTimeField(blank=True, null=True)),
                ("decision_reason", models.TextField(blank=True)),
                (
                    "ended_at",
                    models.DateTimeField(
                        blank=True, help_text="When it stopped waiting, for whatever cause.", null=True
                    ),
                ),
                (
                    "note",
                    models.TextField(blank=True, help_text="Why it lapsed or expired, or who approved their own."),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="operation_requests",
                        to="gpupools.cluster",
                    ),
                ),
                (
                    "decided_by",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="decided_operations",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "pool",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="operation_requests",
                        to="gpupools.nodepool",
                    ),
                ),
                (
                    "push",
                    models.OneToOneField(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="operation_request",
                        to="gpupools.push",
                    ),
                ),
                (
                    "requested_by",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="operation_requests",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["-requested_at", "-pk"],
            },
        ),
        migrations.AddField(
            model_name="notice",
            name="operation",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="notices",
                to="gpupools.operationrequest",
            ),
        ),
        migrations.AddConstraint(
            model_name="notice",
            constraint=models.UniqueConstraint(
                fields=("user", "operation", "kind", "number"), name="an_operation_notice_is_given_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="notice",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("change__isnull", False), ("operation", None)),
                    models.Q(("change", None), ("operation__isnull", False)),
                    _connector="OR",
                ),
                name="a_notice_is_of_one_thing",
            ),
        ),
        migrations.AddConstraint(
            model_name="operationrequest",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state", "pending")),
                fields=("cluster", "kind", "target"),
                name="one_pending_request_of_a_kind",
            ),
        ),
        migrations.AddConstraint(
            model_name="operationrequest",
            constraint=models.CheckConstraint(
                condition=models.Q(("kind__in", ["forced-delete", "size-0", "component-uninstall", "mps-upgrade"])),
                name="request_kind_is_known",
            ),
        ),
    ]
