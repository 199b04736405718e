"""Say what stopped a run, for the message that a user reads."""

from __future__ import annotations

#: What to do about errors of `distributed`, which is not imported here, by their names.
_REMEDIES = {
    "KilledWorker": [
        "Workers that die have most often used up their memory: give each more "
        "(--memory-limit), or fewer threads."
    ]
}


def brief(error: Exception) -> str:
    """Return what an error says as a sentence or two, on one line."""
    name, text = type(error).__name__, " ".join(str(error).split()) or "no more is known"
    notes = getattr(error, "__notes__", [])
    return " ".join([f"{name}: {text.rstrip('.')}.", *notes, *_REMEDIES.get(name, [])])
