from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("gpupools", "0009_notices_of_a_pause"),
    ]

    operations = [
        migrations.RemoveConstraint(model_name="operationrequest", name="request_kind_is_known"),
        migrations.AlterField(
            model_name="operationrequest",
            name="kind",
            field=models.CharField(
                choices=[
                    ("forced-delete", "forced-delete"),
                    ("size-0", "size-0"),
                    ("scale-down", "scale-down"),
                    ("evicting-taint", "evicting-taint"),
                    ("component-uninstall", "component-uninstall"),
                    ("mps-upgrade", "mps-upgrade"),
                ],
                max_length=24,
            ),
        ),
        migrations.AddConstraint(
            model_name="operationrequest",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "kind__in",
                        [
                            "forced-delete",
                            "size-0",
                            "scale-down",
                            "evicting-taint",
                            "component-uninstall",
                            "mps-upgrade",
                        ],
                    )
                ),
                name="request_kind_is_known",
            ),
        ),
    ]
