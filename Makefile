# check runs all that a release must pass, test the tests alone.
.PHONY: check test

check:
	.ci/run

test:
	EDGE_TEST_REQUIRE=1 go test -race -timeout 60m ./...
