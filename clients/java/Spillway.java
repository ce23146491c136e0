// A quote from Spillway for Java 11 or later, without a library: JSON goes in and comes out as text. Environment:
// SPILLWAY_URL, SPILLWAY_TOKEN_FILE, and SPILLWAY_SPOOL, a file such as /run/spillway/spool/web.jsonl. null: the shop's
// last resort is to be used.
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.time.Instant;

public class Spillway {
    /** The request is wrong (an address, a code): ask the customer, charge nothing. */
    public static class Rejected extends Exception { Rejected(String text) { super(text); } }

    static final HttpClient CLIENT = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1)
        .connectTimeout(Duration.ofMillis(500)).build();

    static void spool(String line) throws java.io.IOException {
        Files.writeString(Path.of(System.getenv("SPILLWAY_SPOOL")), line + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    // caller:
    public static String quote(String request) throws Rejected, java.io.IOException {
        String why;
        try {
            var token = Files.readString(Path.of(System.getenv("SPILLWAY_TOKEN_FILE"))).trim();
            var answer = CLIENT.send(HttpRequest.newBuilder(URI.create(System.getenv("SPILLWAY_URL") + "/spillway/v1/quote"))
                .header("Authorization", "Bearer " + token).timeout(Duration.ofMillis(2500))
                .POST(HttpRequest.BodyPublishers.ofString(request)).build(), BodyHandlers.ofString());
            if (answer.statusCode() == 422) throw new Rejected(answer.body());
            int flag = answer.body().indexOf("\"handback\":"); // no ledger had room for the flag: it is ours to keep
            boolean known = answer.statusCode() == 200 && answer.body().contains("\"tax\":\"");
            if (known && flag > 0) spool(answer.body().substring(flag + 11, answer.body().length() - 2));
            if (known) return answer.body();
            why = "status " + answer.statusCode();
        } catch (java.io.IOException | InterruptedException error) { why = error.getClass().getName(); }
        spool("{\"unquoted\":" + request + ",\"at\":\"" + Instant.now() + "\",\"why\":\"" + why + "\"}"); return null; }
    // :caller

    /** A request a line. */
    public static void main(String[] words) throws Exception {
        var in = new java.io.BufferedReader(new java.io.InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            try {
                System.out.println(quote(line));
            } catch (Rejected error) {
                System.out.println("rejected " + error.getMessage());
            }
        }
    }
}
