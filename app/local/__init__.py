"""One machine: embedded Postgres and NATS, a container engine, base images, and the supervisor behind `seatrial up`.

Everything here starts processes of this machine and nothing else: what they do is the business of the other rooms. The
rest of the program sees a local installation and a cluster alike, as settings (`app.settings`).
"""
