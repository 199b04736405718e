from .report import report_page as report_page
