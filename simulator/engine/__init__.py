"""The simulation itself: one loop over iterations, compiled; schedulers and allocators are functions that it asks."""
