import java.io.IOException;
import java.io.Serializable;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.api.java.JavaPairRDD;
import scala.Tuple2;

/** Sort lines by their first ten bytes (TeraSort): all of the input is read, shuffled and written. */
public final class Sort {
    private Sort() {}

    /** See {@link Application#run}. */
    public static void main(String[] arguments) throws IOException {
        int partitions = Application.number("partitions");
        Application.run(arguments, (spark, input, output) -> {
            JavaPairRDD<String, String> sorted = Application.lines(spark, input, partitions)
                    .mapToPair(line -> new Tuple2<>(line.substring(0, 10), line.substring(10)))
                    .sortByKey(true, partitions);
            sorted.map(pair -> pair._1() + pair._2()).saveAsTextFile(output);
            List<Part> parts = spark.textFile(output).mapPartitions(Sort::checked).collect();
            Part all = new Part();
            for (Part part : parts) {
                all.lines += part.lines;
                all.digest += part.digest;
                all.ordered &= part.ordered;
            }
            return all.lines + (all.ordered ? " ordered " : " UNORDERED ") + Long.toHexString(all.digest);
        });
    }

    private static Iterator<Part> checked(Iterator<String> lines) {
        Part part = new Part();
        String before = "";
        while (lines.hasNext()) {
            String line = lines.next();
            String key = line.substring(0, 10);
            part.ordered &= before.compareTo(key) <= 0;
            part.lines++;
            part.digest += Application.digest(line);
            before = key;
        }
        return List.of(part).iterator();
    }

    /** What is known of some of the output. */
    private static final class Part implements Serializable {
        private static final long serialVersionUID = 1L;
        long lines;
        long digest;
        boolean ordered = true;
    }
}
