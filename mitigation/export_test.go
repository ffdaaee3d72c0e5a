package mitigation

// Merge is merge, for tests.
var Merge = merge
