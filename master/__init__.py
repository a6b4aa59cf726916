"""The placement master: admits jobs and places their tasks on the cluster's nodes."""
