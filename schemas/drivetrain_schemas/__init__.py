"""The event contracts of Drivetrain: what travels on its Kafka topics, and nothing else.

`envelope` is the outer form (CloudEvents 1.0), `topics` says where each event travels, one module
per noun holds the payloads, and `registry` finds the class of a (type, version). No I/O here, and
nothing but pydantic is imported.
"""
