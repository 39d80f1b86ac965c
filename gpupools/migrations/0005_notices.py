import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("gpupools", "0004_auto_scaling"),
    ]

    operations = [
        migrations.CreateModel(
            name="NoticeWish",
            fields=[
                (
                    "user",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="notice_wish",
                        serialize=False,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("mail_waiting", models.BooleanField(default=True)),
                ("mail_failed", models.BooleanField(default=True)),
            ],
        ),
        migrations.CreateModel(
            name="Notice",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[("waiting", "A change waits for a decision"), ("failed", "A change failed")],
                        max_length=8,
                    ),
                ),
                (
                    "number",
                    models.PositiveIntegerField(default=0, help_text="Which occurrence: a change may fail again."),
                ),
                ("created_at", models.DateTimeField()),
                ("seen_at", models.DateTimeField(blank=True, null=True)),
                ("mail_due", models.DateTimeField(blank=True, null=True)),
                ("mail_tries", models.PositiveSmallIntegerField(default=0)),
                ("mailed_at", models.DateTimeField(blank=True, null=True)),
                (
                    "change",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="notices", to="gpupools.modechange"
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="notices", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at", "-pk"],
                "constraints": [
                    models.UniqueConstraint(fields=("user", "change", "kind", "number"), name="a_notice_is_given_once")
                ],
            },
        ),
    ]
