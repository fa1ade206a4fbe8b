"""Write outputs that a late worker cannot overwrite.

Other packages import it only when a processor asks for an output: no cold start pays for it.
"""
