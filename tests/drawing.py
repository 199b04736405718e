"""What plots hold, as tests look at it."""


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def lines(ax):
    """The lines that the legend names, by their names."""
    return {line.get_label(): line for line in ax.get_lines() if line.get_label()[0] != "_"}
