from .cards import card as card
from .report import report_page as report_page
