"""The agent's decisions: pure functions from a state and an event to a new state, an answer and effects.

Nothing here touches a file, a clock or the runtime. One module an event; :mod:`mooring.agent.state` says what
is known, :mod:`mooring.agent.effects` what is to be done, :mod:`mooring.agent.reactor.response` what the
runtime is answered.
"""
