"""The first release: people, clusters, pools, changes, jobs, allocation, audit, the queue of pushes."""

import uuid

import django.contrib.auth.models
import django.contrib.auth.validators
import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
    ]

    operations = [
        migrations.CreateModel(
            name="Cluster",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.SlugField(max_length=63, unique=True)),
                (
                    "provider",
                    models.CharField(
                        choices=[("ack", "Alibaba Cloud ACK"), ("kubernetes", "Kubernetes")], max_length=16
                    ),
                ),
                ("is_embedded", models.BooleanField(default=False)),
                ("server", models.CharField(max_length=300)),
                ("context", models.CharField(blank=True, max_length=253)),
                ("credentials", models.TextField(help_text="Encrypted JSON: kubeconfig context and ACK access.")),
                ("ack_cluster_id", models.CharField(blank=True, max_length=64)),
                ("region", models.CharField(blank=True, max_length=64)),
                (
                    "spec",
                    models.CharField(blank=True, help_text="ACK cluster_spec; Pro modes need ack.pro.*", max_length=64),
                ),
                ("version", models.CharField(blank=True, max_length=64)),
                (
                    "state",
                    models.CharField(
                        choices=[("new", "Not probed yet"), ("connected", "Connected"), ("unreachable", "Unreachable")],
                        default="new",
                        max_length=16,
                    ),
                ),
                ("last_error", models.CharField(blank=True, max_length=500)),
                ("last_seen_at", models.DateTimeField(blank=True, null=True)),
                ("unreachable_since", models.DateTimeField(blank=True, null=True)),
                ("created_at", models.DateTimeField()),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="User",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("password", models.CharField(max_length=128, verbose_name="password")),
                ("last_login", models.DateTimeField(blank=True, null=True, verbose_name="last login")),
                (
                    "is_superuser",
                    models.BooleanField(
                        default=False,
                        help_text="Designates that this user has all permissions without explicitly assigning them.",
                        verbose_name="superuser status",
                    ),
                ),
                (
                    "username",
                    models.CharField(
                        error_messages={"unique": "A user with that username already exists."},
                        help_text="Required. 150 characters or fewer. Letters, digits and @/./+/-/_ only.",
                        max_length=150,
                        unique=True,
                        validators=[django.contrib.auth.validators.UnicodeUsernameValidator()],
                        verbose_name="username",
                    ),
                ),
                ("first_name", models.CharField(blank=True, max_length=150, verbose_name="first name")),
                ("last_name", models.CharField(blank=True, max_length=150, verbose_name="last name")),
                ("email", models.EmailField(blank=True, max_length=254, verbose_name="email address")),
                (
                    "is_staff",
                    models.BooleanField(
                        default=False,
                        help_text="Designates whether the user can log into this admin site.",
                        verbose_name="staff status",
                    ),
                ),
                (
                    "is_active",
                    models.BooleanField(
                        default=True,
                        help_text="Designates whether this user should be treated as active. Unselect this instead of deleting accounts.",
                        verbose_name="active",
                    ),
                ),
                ("date_joined", models.DateTimeField(default=django.utils.timezone.now, verbose_name="date joined")),
                (
                    "groups",
                    models.ManyToManyField(
                        blank=True,
                        help_text="The groups this user belongs to. A user will get all permissions granted to each of their groups.",
                        related_name="user_set",
                        related_query_name="user",
                        to="auth.group",
                        verbose_name="groups",
                    ),
                ),
                (
                    "user_permissions",
                    models.ManyToManyField(
                        blank=True,
                        help_text="Specific permissions for this user.",
                        related_name="user_set",
                        related_query_name="user",
                        to="auth.permission",
                        verbose_name="user permissions",
                    ),
                ),
            ],
            options={
                "verbose_name": "user",
                "verbose_name_plural": "users",
                "db_table": "gpupools_user",
                "abstract": False,
            },
            managers=[
                ("objects", django.contrib.auth.models.UserManager()),
            ],
        ),
        migrations.CreateModel(
            name="AuditEntry",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField(db_index=True)),
                ("actor_name", models.CharField(max_length=150)),
                (
                    "via",
                    models.CharField(
                        blank=True, help_text="Name of the API token, empty for a session.", max_length=120
                    ),
                ),
                ("action", models.CharField(max_length=64)),
                ("cluster_name", models.CharField(blank=True, max_length=63)),
                ("object_type", models.CharField(max_length=32)),
                ("object_id", models.CharField(max_length=64)),
                ("object_label", models.CharField(max_length=300)),
                ("data", models.JSONField(default=dict)),
                (
                    "actor",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        to="gpupools.cluster",
                    ),
                ),
            ],
            options={
                "ordering": ["-at", "-pk"],
            },
        ),
        migrations.CreateModel(
            name="JobTemplate",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("slug", models.SlugField(max_length=63)),
                ("version", models.PositiveIntegerField(default=1)),
                ("title", models.CharField(max_length=120)),
                ("description", models.TextField(blank=True)),
                ("yaml", models.TextField()),
                ("parameters", models.JSONField(default=list)),
                ("is_builtin", models.BooleanField(default=False)),
                ("created_at", models.DateTimeField()),
                (
                    "created_by",
                    models.ForeignKey(
                        blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "ordering": ["slug", "-version"],
            },
        ),
        migrations.CreateModel(
            name="ModeChange",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("from_mode", models.CharField(blank=True, max_length=16)),
                ("from_policy", models.CharField(blank=True, max_length=16)),
                ("target_mode", models.CharField(max_length=16)),
                ("target_policy", models.CharField(blank=True, max_length=16)),
                (
                    "holders",
                    models.CharField(
                        choices=[("wait", "Wait for them to finish"), ("evict", "Evict them")],
                        default="wait",
                        max_length=8,
                    ),
                ),
                ("diff", models.JSONField(default=dict)),
                ("blast_radius", models.JSONField(default=list)),
                ("warnings", models.JSONField(default=list)),
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
                            ("applying", "applying"),
                            ("applied", "applied"),
                            ("failed", "failed"),
                            ("paused", "paused"),
                            ("rolling_back", "rolling_back"),
                            ("rolled_back", "rolled_back"),
                            ("abandoned", "abandoned"),
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
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                ("note", models.TextField(blank=True, help_text="Why it lapsed, failed or is paused.")),
                (
                    "remembered",
                    models.JSONField(default=dict, help_text="What must be put back: who was cordoned before."),
                ),
                (
                    "decided_by",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="decided_changes",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "requested_by",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="requested_changes",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["-requested_at", "-pk"],
            },
        ),
        migrations.CreateModel(
            name="ChangeStep",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("position", models.PositiveSmallIntegerField()),
                ("kind", models.CharField(max_length=32)),
                ("title", models.CharField(max_length=200)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("waiting", "Not started"),
                            ("running", "Running"),
                            ("done", "Done"),
                            ("failed", "Failed"),
                        ],
                        default="waiting",
                        max_length=16,
                    ),
                ),
                ("detail", models.CharField(blank=True, max_length=1000)),
                (
                    "learned",
                    models.JSONField(default=dict, help_text="Task ids and the like, stored before waiting on them."),
                ),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                (
                    "change",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="steps", to="gpupools.modechange"
                    ),
                ),
            ],
            options={
                "ordering": ["change_id", "position"],
            },
        ),
        migrations.CreateModel(
            name="NodePool",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=63)),
                (
                    "pool_id",
                    models.CharField(
                        blank=True, help_text="The provider's id; the name on Kubernetes.", max_length=128
                    ),
                ),
                ("mode", models.CharField(blank=True, max_length=16)),
                ("policy", models.CharField(blank=True, max_length=16)),
                ("instance_types", models.JSONField(default=list)),
                ("vswitch_ids", models.JSONField(default=list)),
                ("desired_size", models.PositiveIntegerField(default=0)),
                ("labels", models.JSONField(default=dict)),
                ("taints", models.JSONField(default=list)),
                ("node_names", models.JSONField(default=list)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("pending", "Waiting to be created"),
                            ("creating", "Creating"),
                            ("active", "Active"),
                            ("updating", "Updating"),
                            ("deleting", "Deleting"),
                            ("failed", "Failed"),
                            ("gone", "Gone from the cluster"),
                        ],
                        default="pending",
                        max_length=16,
                    ),
                ),
                ("seen", models.JSONField(default=dict)),
                ("error", models.CharField(blank=True, max_length=500)),
                ("synced_at", models.DateTimeField(blank=True, null=True)),
                ("created_at", models.DateTimeField()),
                (
                    "version",
                    models.PositiveIntegerField(default=1, help_text="Counts edits; the ETag of the REST API."),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="pools", to="gpupools.cluster"
                    ),
                ),
            ],
            options={
                "ordering": ["cluster_id", "name"],
            },
        ),
        migrations.AddField(
            model_name="modechange",
            name="pool",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="changes", to="gpupools.nodepool"
            ),
        ),
        migrations.CreateModel(
            name="Push",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("op_id", models.UUIDField(default=uuid.uuid4, unique=True)),
                ("kind", models.CharField(max_length=32)),
                (
                    "target",
                    models.CharField(
                        help_text="What is written to, e.g. pool:7; one push at a time each.", max_length=100
                    ),
                ),
                ("payload", models.JSONField(default=dict)),
                ("learned", models.JSONField(default=dict)),
                (
                    "state",
                    models.CharField(
                        choices=[("queued", "Queued"), ("done", "Done"), ("failed", "Failed")],
                        default="queued",
                        max_length=8,
                    ),
                ),
                ("attempts", models.PositiveIntegerField(default=0)),
                ("due_at", models.DateTimeField(db_index=True)),
                ("lease_until", models.DateTimeField(blank=True, null=True)),
                ("fence", models.PositiveBigIntegerField(default=0)),
                ("error", models.CharField(blank=True, max_length=1000)),
                ("created_at", models.DateTimeField()),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="pushes", to="gpupools.cluster"
                    ),
                ),
                (
                    "requested_by",
                    models.ForeignKey(
                        blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "ordering": ["due_at", "pk"],
            },
        ),
        migrations.CreateModel(
            name="Submission",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(max_length=16)),
                ("namespace", models.CharField(max_length=63)),
                ("name", models.CharField(max_length=253)),
                ("yaml", models.TextField()),
                ("manifest", models.JSONField(default=dict)),
                ("findings", models.JSONField(default=list)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("queued", "Queued"),
                            ("submitted", "Submitted"),
                            ("failed", "Not accepted"),
                            ("deleting", "Deleting"),
                            ("deleted", "Deleted"),
                        ],
                        default="queued",
                        max_length=16,
                    ),
                ),
                ("object_uid", models.CharField(blank=True, max_length=64)),
                ("error", models.CharField(blank=True, max_length=1000)),
                ("submitted_at", models.DateTimeField()),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="submissions", to="gpupools.cluster"
                    ),
                ),
                (
                    "submitted_by",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="submissions",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "template",
                    models.ForeignKey(
                        blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, to="gpupools.jobtemplate"
                    ),
                ),
            ],
            options={
                "ordering": ["-submitted_at", "-pk"],
            },
        ),
        migrations.CreateModel(
            name="WatchLease",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("holder", models.CharField(blank=True, max_length=64)),
                ("epoch", models.PositiveBigIntegerField(default=0)),
                ("until", models.DateTimeField()),
                (
                    "cluster",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="watch_lease", to="gpupools.cluster"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="ApiToken",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=100)),
                ("digest", models.CharField(max_length=64, unique=True)),
                (
                    "role",
                    models.CharField(
                        choices=[("viewer", "Viewer"), ("operator", "Operator"), ("admin", "Admin")], max_length=16
                    ),
                ),
                ("created_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField(blank=True, null=True)),
                ("last_used_at", models.DateTimeField(blank=True, null=True)),
                ("revoked_at", models.DateTimeField(blank=True, null=True)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="api_tokens",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at", "-pk"],
                "constraints": [models.UniqueConstraint(fields=("user", "name"), name="one_token_of_a_name_per_user")],
            },
        ),
        migrations.CreateModel(
            name="AllocationPoint",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("taken_at", models.DateTimeField()),
                ("mode", models.CharField(max_length=16)),
                ("nodes", models.PositiveIntegerField()),
                ("cards", models.PositiveIntegerField()),
                ("cards_used", models.PositiveIntegerField()),
                ("memory_units", models.PositiveIntegerField()),
                ("memory_units_used", models.PositiveIntegerField()),
                ("memory_units_pending", models.PositiveIntegerField()),
                ("memory_units_orphan", models.PositiveIntegerField()),
                ("core_percent", models.PositiveIntegerField()),
                ("core_percent_used", models.PositiveIntegerField()),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="history", to="gpupools.cluster"
                    ),
                ),
            ],
            options={
                "ordering": ["-taken_at", "mode"],
                "indexes": [models.Index(fields=["cluster", "taken_at"], name="gpupools_al_cluster_53754f_idx")],
            },
        ),
        migrations.CreateModel(
            name="ComponentState",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=64)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("absent", "Not installed"),
                            ("installing", "Installing"),
                            ("installed", "Installed"),
                            ("degraded", "Degraded"),
                            ("removing", "Removing"),
                            ("failed", "Failed"),
                        ],
                        max_length=16,
                    ),
                ),
                ("version", models.CharField(blank=True, max_length=64)),
                ("found_by", models.CharField(blank=True, help_text="add-on or DaemonSets", max_length=64)),
                ("desired", models.IntegerField(blank=True, null=True)),
                ("ready", models.IntegerField(blank=True, null=True)),
                ("detail", models.CharField(blank=True, max_length=500)),
                ("checked_at", models.DateTimeField()),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="components", to="gpupools.cluster"
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
                "constraints": [models.UniqueConstraint(fields=("cluster", "name"), name="one_state_per_component")],
            },
        ),
        migrations.CreateModel(
            name="Grant",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "role",
                    models.CharField(
                        choices=[("viewer", "Viewer"), ("operator", "Operator"), ("admin", "Admin")], max_length=16
                    ),
                ),
                ("namespace", models.CharField(blank=True, help_text="Empty: every namespace.", max_length=63)),
                (
                    "cluster",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="grants",
                        to="gpupools.cluster",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="grants", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("cluster__isnull", False)),
                        fields=("user", "role", "cluster", "namespace"),
                        name="one_grant_of_a_kind",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("cluster__isnull", True)),
                        fields=("user", "role", "namespace"),
                        name="one_grant_of_a_kind_on_all",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("role__in", ["viewer", "operator", "admin"])), name="grant_role_is_known"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="IdempotencyKey",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.CharField(max_length=128)),
                ("digest", models.CharField(help_text="SHA-256 of method, path and body.", max_length=64)),
                ("status", models.PositiveSmallIntegerField(blank=True, null=True)),
                ("body", models.JSONField(default=dict)),
                ("created_at", models.DateTimeField()),
                ("user", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to=settings.AUTH_USER_MODEL)),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("user", "key"), name="idempotency_key_is_used_once")],
            },
        ),
        migrations.AddConstraint(
            model_name="jobtemplate",
            constraint=models.UniqueConstraint(fields=("slug", "version"), name="one_template_per_version"),
        ),
        migrations.AddConstraint(
            model_name="changestep",
            constraint=models.UniqueConstraint(fields=("change", "position"), name="steps_are_in_order"),
        ),
        migrations.AddConstraint(
            model_name="nodepool",
            constraint=models.UniqueConstraint(fields=("cluster", "name"), name="pool_name_is_taken_once"),
        ),
        migrations.AddConstraint(
            model_name="modechange",
            constraint=models.UniqueConstraint(
                condition=models.Q(
                    ("state__in", ["applying", "approved", "failed", "paused", "pending", "rolling_back"])
                ),
                fields=("pool",),
                name="one_open_change_per_pool",
            ),
        ),
        migrations.AddConstraint(
            model_name="push",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state", "queued")),
                fields=("cluster", "target"),
                name="one_push_in_flight_per_target",
            ),
        ),
    ]
