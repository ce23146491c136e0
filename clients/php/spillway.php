<?php
// A quote from Spillway for PHP 8, without a package or extension. Environment: SPILLWAY_URL, SPILLWAY_TOKEN_FILE, and
// SPILLWAY_SPOOL, a file such as /run/spillway/spool/web.jsonl. null: the shop's last resort is to be used.

class SpillwayRejected extends Exception {} // the request is wrong (an address, a code): ask the customer, charge nothing

// caller:
function spillway_quote(array $request): ?array {
    $spool = fn(array $line) => file_put_contents(getenv('SPILLWAY_SPOOL'), json_encode($line) . "\n", FILE_APPEND);
    $token = trim((string)@file_get_contents(getenv('SPILLWAY_TOKEN_FILE')));
    $text = @file_get_contents(getenv('SPILLWAY_URL') . '/spillway/v1/quote', false, stream_context_create(['http' => [
        'method' => 'POST', 'header' => "Authorization: Bearer $token\r\nContent-Type: application/json\r\nConnection: close",
        'content' => json_encode($request), 'timeout' => 2.5, 'ignore_errors' => true]]));
    $status = (int)substr($http_response_header[0] ?? '', 9, 3);
    $body = json_decode((string)$text, true);
    if ($status === 422) throw new SpillwayRejected(json_encode($body['provider_error'] ?? null));
    if ($status === 200 && isset($body['fallback']['handback']))
        $spool($body['fallback']['handback']); // no ledger had room for the flag: it is ours to keep
    if ($status === 200 && $body) return $body;
    $spool(['unquoted' => $request, 'at' => date(DATE_ATOM), 'why' => "status $status"]);
    return null; }
// :caller

if (realpath($_SERVER['SCRIPT_FILENAME']) === __FILE__) // a request a line
    while (($line = fgets(STDIN)) !== false)
        try {
            echo json_encode(spillway_quote(json_decode($line, true))), "\n";
        } catch (SpillwayRejected $error) {
            echo 'rejected ', $error->getMessage(), "\n";
        }
