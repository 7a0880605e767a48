"""The event contracts of Drivetrain: the records of its Kafka topics, and nothing else.

`envelope` is the outer form (CloudEvents 1.0), `topics` declares the topics, one module per noun
holds the payloads, and `registry` finds the class of a (type, version). No I/O, and no import but
pydantic.
"""
