"""The embedded broker's program is found, and the test's server is a real one."""

from redis import Redis

from gpupools.management.broker import broker_program


def test_the_program_is_one_that_can_be_run():
    assert broker_program()


def test_the_test_server_keeps_what_it_is_told(empty_redis: Redis):
    empty_redis.set("card", "7")
    assert empty_redis.get("card") == b"7"
