"""What trains the runs of a bench: processes of this machine, or the nodes of a Ray cluster."""
