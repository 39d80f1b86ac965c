"""One function per thing a user can do: rule, write, audit, ring. The only writers of rows."""
