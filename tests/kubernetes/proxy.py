"""A TCP proxy on loopback that a test can cut, close and let hang."""

import contextlib
import socket
import threading


class Proxy:
    """Connections to `port` are passed on to the target."""

    def __init__(self, target_port: int) -> None:
        self._target = ("127.0.0.1", target_port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._passes = threading.Event()
        self._passes.set()
        self.num_connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Every open connection breaks at once; new ones are taken."""
        with self._lock:
            connections, self._open = self._open, set()
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def hang(self) -> None:
        """Connections stay open, and nothing passes in either direction."""
        self._passes.clear()

    def go_on(self) -> None:
        self._passes.set()

    def close(self) -> None:
        self._passes.set()
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.num_connections += 1
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            with self._lock:
                self._open |= {client, server}
            for source, destination in ((client, server), (server, client)):
                arguments = (source, destination)
                threading.Thread(target=self._pass_on, args=arguments, daemon=True).start()

    def _pass_on(self, source: socket.socket, destination: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self._passes.wait()
                destination.sendall(data)
        for end in (source, destination):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        source.close()
        with self._lock:
            self._open.discard(source)
