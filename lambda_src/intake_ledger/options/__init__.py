"""What an option adds to the attempts of a pipeline, one module for each option, with the name of its setting.

`intake_ledger.consumer.hooks` has the points at which an option is asked and the options that guard claims. It imports
the modules of options that are set. The kinds import `rejects`. Nothing else of the runtime knows these modules.
"""
