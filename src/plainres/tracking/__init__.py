"""Sinks beside the run's own files, which stay the truth: Weights & Biases, and classes of the user's own.

    training process (client.py)                        helper process, one a sink (helper.py)
    on_checkpoint(lengths)   --- one line on a pipe -->  reads the rows that the checkpoint covers, sink.write(rows)
    end()                    --- one line on a pipe -->  reads the rest, sink.finish(run.json)

A sink only ever sees rows that will not be redone. It lives in a process of its own, so that whatever it does (wait for
a network, raise, hang, die) costs training one short write to a pipe and nothing else. What it did not take down is
still in the run's files; ``untracked-<sink>.txt`` in the run's folder says so until it is made good.
"""
