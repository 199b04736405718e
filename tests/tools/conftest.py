import pytest

from recipes import make_site, parts_of_one_process, write_logs


@pytest.fixture
def logs(tmp_path):
    """The folder with the logs of the page."""
    write_logs(tmp_path / "logs")
    return tmp_path / "logs"


@pytest.fixture
def site(tmp_path):
    """The folder of a site, as the page makes it."""
    return make_site(tmp_path)


@pytest.fixture(scope="module")
def parts_of_threads(tmp_path_factory):
    """Digests of the parts that one process writes of the job of a site."""
    return parts_of_one_process(tmp_path_factory.mktemp("threads"))
