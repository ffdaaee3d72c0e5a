# check runs everything that a release must pass; test runs only the tests.
.PHONY: check test

check:
	.ci/run

test:
	EDGE_TEST_REQUIRE=1 GORACE=atexit_sleep_ms=0 go test -race -timeout 60m ./...
