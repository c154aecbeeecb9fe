"""Reports of finished evaluations: tables, figures, HTML pages and docs/results.md."""
