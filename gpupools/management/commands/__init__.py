"""The console's commands: up, runsimulator, watchclusters, tour, bench."""
