"""Operating: what a cluster is doing, for people and for machines."""
