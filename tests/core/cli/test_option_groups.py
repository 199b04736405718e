"""The help of a command has its options in groups."""

import click
import pytest
from click.testing import CliRunner

from lpe_dask.cli import option_groups
from lpe_dask.cli.commands import cli
from lpe_dask.model import PARAMETERS


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_help__has_each_option_once(name):
    command = cli.commands[name]
    context = click.Context(command)
    options = [of for of in command.get_params(context) if isinstance(of, click.Option)]

    groups = dict(option_groups.option_groups(context))

    grouped = [of for group in groups.values() for of in group]
    assert sorted(of.name for of in grouped) == sorted(of.name for of in options)
    text = CliRunner().invoke(cli, [name, "--help"]).stdout
    places = [text.index(f"\n{heading}:\n") for heading in groups]
    assert places == sorted(places)


def test_groups__are_of_the_model_and_of_workers():
    groups = dict(option_groups.option_groups(click.Context(cli.commands["score"])))

    names = {heading: {of.name for of in group} for heading, group in groups.items()}
    assert list(names) == ["Options", "Options of the model", "Options of the workers"]
    assert names["Options of the model"] == {
        n for n, of in PARAMETERS.items() if of.is_option
    }
    assert names["Options of the workers"] == set(option_groups._OF_WORKERS)
    assert {"output", "nominal", "debug"} <= names["Options"]
