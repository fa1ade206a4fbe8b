"""The sets of files that are made of a pipeline's objects, as the pipeline knows them."""
