"""What people are told of mode changes and other requests: rows that the pages count, and e-mail for who wants it.

A notice is written in the transaction of what it tells; ``mail_due`` marks the row as still to be mailed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import timedelta
from smtplib import SMTPException

from django.conf import settings
from django.core.mail import send_mail
from django.db.models import F
from django.utils import timezone
from django.utils.translation import gettext as _

from gpupools.domain.changes import OPEN, State
from gpupools.domain.routes import MANUAL
from gpupools.models import ChangeStep, Cluster, ModeChange, Notice, NoticeWish, OperationRequest, Push, Role, User
from gpupools.services.access import Actor

Subject = ModeChange | OperationRequest

logger = logging.getLogger(__name__)

MOST_TRIES = 6
CLAIM = timedelta(minutes=2)
_STATES = {
    Notice.Kind.WAITING: State.PENDING,
    Notice.Kind.FAILED: State.FAILED,
    Notice.Kind.PAUSED: State.PAUSED,
}


def waiting(subject: Subject) -> None:
    """Tell every administrator of the cluster but the requester that something waits for a decision."""
    people = [
        user
        for user in User.objects.filter(is_active=True, grants__isnull=False).distinct()
        if user.pk != subject.requested_by_id and Actor(user).can(Role.ADMIN, _cluster_of(subject))
    ]
    _tell(people, subject, Notice.Kind.WAITING)


def failed(subject: Subject) -> None:
    """Tell whoever asked for something and whoever decided on it that it failed."""
    _tell(_concerned(subject), subject, Notice.Kind.FAILED)


def paused(change: ModeChange, *, by: Actor | None = None) -> None:
    """Tell whoever asked for a change and whoever decided on it that it is paused; not who paused it."""
    people = [user for user in _concerned(change) if by is None or user.pk != by.user_id]
    _tell(people, change, Notice.Kind.PAUSED)


def needs_person(change: ModeChange) -> None:
    """Tell whoever asked for a change and whoever decided on it that a step waits for somebody's hands."""
    _tell(_concerned(change), change, Notice.Kind.PERSON)


def _concerned(subject: Subject) -> list[User]:
    people = {subject.requested_by_id: subject.requested_by}
    if subject.decided_by:
        people[subject.decided_by.pk] = subject.decided_by
    return list(people.values())


def _cluster_of(subject: Subject) -> Cluster:
    return subject.pool.cluster if isinstance(subject, ModeChange) else subject.cluster


def _of(subject: Subject) -> dict[str, Subject]:
    return {"change" if isinstance(subject, ModeChange) else "operation": subject}


def _tell(people: Iterable[User], subject: Subject, kind: Notice.Kind) -> None:
    now = timezone.now()
    number = Notice.objects.filter(**_of(subject), kind=kind).count()
    wishes = NoticeWish.objects.in_bulk()
    for user in people:
        wish = wishes.get(user.pk) or NoticeWish(user=user)
        wants = wish.mail_waiting if kind == Notice.Kind.WAITING else wish.mail_failed
        Notice.objects.create(
            user=user,
            **_of(subject),
            kind=kind,
            number=number,
            created_at=now,
            mail_due=now if wants and user.email else None,
        )


def send_due() -> int:
    """Send the e-mails that are due, each by one worker; return how many were sent. A failed one is tried later."""
    sent = 0
    related = ("user", "change__pool__cluster", "operation__cluster", "operation__push")
    for notice in Notice.objects.filter(mail_due__lte=timezone.now()).select_related(*related):
        claimed = Notice.objects.filter(pk=notice.pk, mail_due=notice.mail_due).update(
            mail_due=timezone.now() + CLAIM * 2**notice.mail_tries, mail_tries=F("mail_tries") + 1
        )
        if not claimed:
            continue
        if not is_current(notice) or not notice.user.is_active:
            Notice.objects.filter(pk=notice.pk).update(mail_due=None)
            continue
        subject, body = text(notice)
        try:
            send_mail(subject, body, settings.DEFAULT_FROM_EMAIL, [notice.user.email])
        except (SMTPException, OSError) as error:
            logger.warning("The notice %s was not mailed: %s", notice.pk, error)
            if notice.mail_tries + 1 >= MOST_TRIES:
                Notice.objects.filter(pk=notice.pk).update(mail_due=None)
            continue
        Notice.objects.filter(pk=notice.pk).update(mail_due=None, mailed_at=timezone.now())
        sent += 1
    return sent


def is_current(notice: Notice) -> bool:
    """Tell whether what a notice says is still so."""
    if notice.operation is not None:
        if notice.kind == Notice.Kind.WAITING:
            return notice.operation.state == State.PENDING
        return notice.operation.push is not None and notice.operation.push.state == Push.State.FAILED
    change = _change_of(notice)
    if notice.kind == Notice.Kind.PERSON:
        due = change.steps.filter(kind__in=MANUAL, state=ChangeStep.State.RUNNING, confirmed_at=None)
        return change.state == State.APPLYING and due.exists()
    return change.state == _STATES[Notice.Kind(notice.kind)]


def text(notice: Notice) -> tuple[str, str]:
    """Return subject and body of a notice. The reason is a person's text; no pod is named."""
    if notice.operation is not None:
        return _text_of_operation(notice, notice.operation)
    change = _change_of(notice)
    values = {
        "pool": change.pool.name,
        "cluster": change.pool.cluster.name,
        "mode": change.target_mode,
        "who": change.requested_by.get_username(),
        "reason": change.reason,
        "note": change.note,
        "link": f"{settings.GPUPOOLS_PUBLIC_URL.rstrip('/')}/changes/{change.pk}/",
    }
    if notice.kind == Notice.Kind.WAITING:
        subject = _("%(pool)s on %(cluster)s: a change to %(mode)s waits for your decision") % values
        body = _("%(who)s asks for it: %(reason)s\n\nRead what it does and decide: %(link)s\n") % values
    elif notice.kind == Notice.Kind.PERSON:
        subject = _("%(pool)s on %(cluster)s: the change to %(mode)s waits for a person") % values
        body = _("A step is to be done by hand. See which nodes, and confirm it: %(link)s\n") % values
    elif notice.kind == Notice.Kind.PAUSED:
        subject = _("%(pool)s on %(cluster)s: the change to %(mode)s is paused") % values
        body = _("Let it go on, roll it back or give it up: %(link)s\n") % values
    else:
        subject = _("%(pool)s on %(cluster)s: the change to %(mode)s failed") % values
        body = _("%(note)s\n\nTry it again, roll it back or give it up: %(link)s\n") % values
    return " ".join(subject.split()), body


def _text_of_operation(notice: Notice, request: OperationRequest) -> tuple[str, str]:
    values = {
        "title": request.title,
        "cluster": request.cluster.name,
        "who": request.requested_by.get_username(),
        "reason": request.reason,
        "note": request.push.error if request.push else "",
        "link": f"{settings.GPUPOOLS_PUBLIC_URL.rstrip('/')}/requests/{request.pk}/",
    }
    if notice.kind == Notice.Kind.WAITING:
        subject = _("%(title)s on %(cluster)s: it waits for your decision") % values
        body = _("%(who)s asks for it: %(reason)s\n\nRead what it does and decide: %(link)s\n") % values
    else:
        subject = _("%(title)s on %(cluster)s: it failed") % values
        body = _("%(note)s\n\nSee what was asked for, and ask again: %(link)s\n") % values
    return " ".join(subject.split()), body


def _change_of(notice: Notice) -> ModeChange:
    if notice.change is None:
        raise ValueError(f"Notice {notice.pk} is of nothing; the database does not keep such a row.")
    return notice.change


def unseen(actor: Actor) -> int:
    """Return how many changes that stopped and operations that failed somebody was told of and has not looked at."""
    if actor.user is None:
        return 0
    open_states = [state.value for state in OPEN]
    rows = Notice.objects.filter(user=actor.user, seen_at=None).exclude(kind=Notice.Kind.WAITING)
    changes = rows.filter(change__state__in=open_states).values("change").distinct().count()
    return changes + rows.filter(operation__isnull=False).values("operation").distinct().count()


def see(actor: Actor, subject: Subject) -> None:
    """Note that somebody has looked at something."""
    if actor.user is not None:
        Notice.objects.filter(user=actor.user, **_of(subject), seen_at=None).update(seen_at=timezone.now())


def wish_of(actor: Actor) -> NoticeWish:
    """Return what somebody wants e-mail about."""
    found = NoticeWish.objects.filter(user=actor.user_id).first()
    return found or NoticeWish(user=actor.user)


def wish(actor: Actor, *, mail_waiting: bool, mail_failed: bool) -> NoticeWish:
    """Keep what somebody wants e-mail about."""
    row, _made = NoticeWish.objects.update_or_create(
        user=actor.user, defaults={"mail_waiting": mail_waiting, "mail_failed": mail_failed}
    )
    return row
