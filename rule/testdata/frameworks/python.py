"""Serves requests with a framework, and answers what it reads: python.py FRAMEWORK PORT.

The exit status is 3 if the framework is not installed."""
import sys

framework, port = sys.argv[1], int(sys.argv[2])


def answer(cookie, queries, header, basic=None):
    """Lists the values of the cookie, the parameter and the header, and a name and password, in hexadecimal digits after their kind."""
    lines = [("cookie", cookie)] + [("query", value) for value in queries] + [("header", header), ("authorization", basic)]
    return "".join(kind + " " + value.encode("utf-8", "surrogateescape").hex() + "\n" for kind, value in lines if value is not None)


def django():
    from django.conf import settings
    from django.core.servers.basehttp import WSGIRequestHandler, WSGIServer
    from django.core.wsgi import get_wsgi_application
    from django.http import HttpResponse
    from django.urls import re_path

    def view(request):
        return HttpResponse(answer(request.COOKIES.get("user_id"), request.GET.getlist("user_id"), request.headers.get("X-User-Id")))

    settings.configure(ROOT_URLCONF=(re_path("", view),), ALLOWED_HOSTS=["*"], SECRET_KEY="test")
    server = WSGIServer(("127.0.0.1", port), WSGIRequestHandler)
    server.set_app(get_wsgi_application())
    server.serve_forever()


def flask():
    from flask import Flask, request

    app = Flask("test")

    @app.route("/")
    def view():
        a = request.authorization
        basic = a.username + ":" + a.password if a and a.type == "basic" else None
        return answer(request.cookies.get("user_id"), request.args.getlist("user_id"), request.headers.get("X-User-Id"), basic)

    app.run(port=port)


def aiohttp():
    from aiohttp import BasicAuth, web

    async def view(request):
        try:
            basic = "%s:%s" % BasicAuth.decode(request.headers.get("Authorization", ""))[:2]
        except ValueError:
            basic = None
        return web.Response(text=answer(request.cookies.get("user_id"), request.query.getall("user_id", []), request.headers.get("X-User-Id"), basic))

    app = web.Application()
    app.add_routes([web.get("/", view)])
    web.run_app(app, host="127.0.0.1", port=port)


def tornado():
    import asyncio

    from tornado.web import Application, RequestHandler

    class Handler(RequestHandler):
        def get(self):
            self.write(answer(self.get_cookie("user_id"), self.get_arguments("user_id"), self.request.headers.get("X-User-Id")))

    async def main():
        Application([("/", Handler)]).listen(port, "127.0.0.1")
        await asyncio.Event().wait()

    asyncio.run(main())


try:
    globals()[framework]()
except ImportError as error:
    print(error, file=sys.stderr)
    sys.exit(3)
