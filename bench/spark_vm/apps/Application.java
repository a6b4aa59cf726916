import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.stream.IntStream;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;

/**
 * What the four applications have in common: their driver waits until they arrive.
 *
 * <p>In a cluster drivers run on their users' machines, and what it takes to start them is no load of the host that
 * executors share. So a driver first runs its application on a little input, within itself; then it registers with the
 * cluster, without asking for an executor yet (dynamic allocation, from none on), and says "ready". The line that it
 * reads then, the directory of an output, makes it run the application; it says "result" and the answer with its digest,
 * or what went wrong, and registers anew.
 */
final class Application {
    /** The application's work: reads {@code input} and makes of it an answer with its digest, the same for any order. */
    interface Work {
        String answer(JavaSparkContext spark, String input, String output);
    }

    private Application() {}

    /** Arguments: input, little input, directory of the little input's output. */
    static void run(String[] arguments, Work work) throws IOException {
        SparkConf here = new SparkConf().setMaster(System.getProperty("warmUp", "local[1]")).setAppName("warm-up");
        try (JavaSparkContext spark = new JavaSparkContext(here)) {
            work.answer(spark, arguments[1], arguments[2]);
            stages(spark);
        }
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String output;
        do {
            try (JavaSparkContext spark = new JavaSparkContext(new SparkConf())) {
                say("ready");
                output = lines.readLine();
                if (output != null) {
                    say(said(work, spark, arguments[0], output));
                }
            }
        } while (output != null);
    }

    private static String said(Work work, JavaSparkContext spark, String input, String output) {
        try {
            return "result " + work.answer(spark, input, output);
        } catch (RuntimeException error) {
            return "failed " + String.valueOf(error.getMessage()).replaceAll("\\s+", " ");
        }
    }

    /**
     * The lines of an input: of a file, or of an object store (http), where each part is a stream of its own.
     */
    static JavaRDD<String> lines(JavaSparkContext spark, String input, int partitions) {
        if (!input.startsWith("http:")) {
            return spark.textFile(input, partitions);
        }
        List<Integer> parts = IntStream.range(0, partitions).boxed().toList();
        return spark.parallelize(parts, partitions).flatMap(part -> {
            InputStream stream = new URL(input + "?part=" + part + "&of=" + partitions).openStream();
            return new BufferedReader(new InputStreamReader(stream, StandardCharsets.UTF_8)).lines().iterator();
        });
    }

    /** A hash (FNV-1a) to be added up, so that the order of lines does not count. */
    static long digest(String line) {
        long hash = 0xcbf29ce484222325L;
        for (byte each : line.getBytes(StandardCharsets.UTF_8)) {
            hash = (hash ^ each) * 0x100000001b3L;
        }
        return hash;
    }

    /** The partitions that an application makes of its data, and how often it iterates. */
    static int number(String property) {
        return Integer.parseInt(System.getProperty(property));
    }

    /** What executors' stand-ins ask of the driver: the first time it takes long. */
    private static void stages(JavaSparkContext spark) throws IOException {
        String address = spark.sc().uiWebUrl().get() + "/api/v1/applications/" + spark.sc().applicationId() + "/stages";
        try (InputStream answer = new URL(address).openStream()) {
            answer.readAllBytes();
        }
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
