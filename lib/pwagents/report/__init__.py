"""A preset's results for readers: RESULTS.md and PAPERS.md, a site, and the committed reference."""
