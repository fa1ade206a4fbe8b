"""Two pipelines on one bucket, by EventBridge: an archive of every version, and a search index of the latest texts."""
