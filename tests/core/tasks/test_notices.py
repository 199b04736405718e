"""Lines of workers reach the user."""

import pytest

from lpe_dask.tasks import compute, new_tasks, notify
from waiting import eventually


def test_notify__logs_a_warning_where_the_user_is(caplog):
    notify("compiling, about 20 s")

    assert caplog.messages == ["compiling, about 20 s"]


@pytest.mark.cluster
def test_notify__prints_at_the_client_of_a_worker(client, capsys):
    compute(*new_tasks("notify", [(notify, "compiling, about 20 s")]))

    said = ""

    def is_said():
        nonlocal said
        said += capsys.readouterr().err
        return "compiling, about 20 s\n" in said

    assert eventually(is_said)
