from .cards import card as card
from .report import MOST_BYTES as MOST_BYTES
from .report import report_page as report_page
