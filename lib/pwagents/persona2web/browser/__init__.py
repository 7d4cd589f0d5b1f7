"""How an agent sees and uses a page: in Chromium, or from the HTML alone."""
