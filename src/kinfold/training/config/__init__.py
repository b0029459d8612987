"""The configuration of a run: typed tables (`settings`), and how TOML files and `--set` become them (`parsing`)."""
