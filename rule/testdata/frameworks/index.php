<?php // Answers what PHP reads.
function add(string $kind, mixed $value): void {
    if (is_array($value)) {
        foreach ($value as $v) add($kind, $v);
    } elseif ($value !== null) {
        echo $kind, ' ', bin2hex($value), "\n";
    }
}
add('cookie', $_COOKIE['user_id'] ?? null);
add('query', $_GET['user_id'] ?? null);
add('header', $_SERVER['HTTP_X_USER_ID'] ?? null);
if (isset($_SERVER['PHP_AUTH_USER'])) add('authorization', $_SERVER['PHP_AUTH_USER'] . ':' . ($_SERVER['PHP_AUTH_PW'] ?? ''));
