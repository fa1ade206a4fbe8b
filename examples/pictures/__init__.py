"""Grey copies of pictures: three consumers, the same uploads, the same faults, and a montage of their outputs."""
