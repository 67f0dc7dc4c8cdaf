"""A server of the S3 protocol on this machine: as much of it as readers ask for, with real messages over HTTP."""

import contextlib
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

_MOST = 2  # keys of one answer to a listing: readers have to ask for the rest


@dataclass
class Store:
    """Objects by bucket and key, and what was asked for."""

    address: str
    objects: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)


@contextlib.contextmanager
def serving():
    """A store that answers as long as the block runs."""
    store = Store("")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            """Say nothing."""

        def do_HEAD(self):
            self.do_GET()

        def do_GET(self):
            url = urlsplit(self.path)
            name = unquote(url.path).strip("/")
            asked = {key: values[0] for key, values in parse_qs(url.query, keep_blank_values=True).items()}
            store.asked.append(f"{self.command} {name}")
            if "list-type" in asked or "prefix" in asked:
                return self._answer(200, _listing(store, name, asked), {"Content-Type": "application/xml"})
            if "/" not in name:
                known = any(key.startswith(f"{name}/") for key in store.objects)
                return self._answer(200 if known else 404, b"")
            if name not in store.objects:
                return self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return self._object(store.objects[name])

        def _object(self, content):
            facts = {"ETag": '"1"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
            wanted = self.headers.get("Range")
            if wanted is None:
                return self._answer(200, content, facts)
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start, stop = int(first), min(int(last or len(content) - 1), len(content) - 1) + 1
            told = facts | {"Content-Range": f"bytes {start}-{stop - 1}/{len(content)}"}
            return self._answer(206, content[start:stop], told)

        def _answer(self, status, content, headers=()):
            self.send_response(status)
            for key, value in dict(headers).items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    store.address = f"127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _listing(store, bucket, asked):
    """A page of ListObjectsV2: keys with a prefix, those beyond a delimiter as folders."""
    prefix, delimiter = asked.get("prefix", ""), asked.get("delimiter", "")
    found = {}
    for name in sorted(store.objects):
        key = name.removeprefix(f"{bucket}/")
        if key != name and key.startswith(prefix):
            folder, cut, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
            found[prefix + folder + cut if cut else key] = bool(cut)
    names = [name for name in found if name > asked.get("continuation-token", "")]
    page = names[: min(_MOST, int(asked.get("max-keys", _MOST)))]
    more = len(page) < len(names)
    files = "".join(
        f"<Contents><Key>{escape(name)}</Key><Size>{len(store.objects[f'{bucket}/{name}'])}</Size>"
        "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
        for name in page
        if not found[name]
    )
    folders = "".join(
        f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in page if found[name]
    )
    token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
    return (
        f"<ListBucketResult><Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(page)}</KeyCount>"
        f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{files}{folders}</ListBucketResult>"
    ).encode()
