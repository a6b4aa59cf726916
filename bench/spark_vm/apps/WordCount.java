import java.io.IOException;
import java.util.Arrays;
import scala.Tuple2;

/** Count words: the whole input is read, little is shuffled. */
public final class WordCount {
    private WordCount() {}

    /** See {@link Application#run}. */
    public static void main(String[] arguments) throws IOException {
        int partitions = Application.number("partitions");
        Application.run(arguments, (spark, input, output) -> {
            var counts = Application.lines(spark, input, partitions)
                    .flatMap(line -> Arrays.asList(line.split(" ")).iterator())
                    .mapToPair(word -> new Tuple2<>(word, 1L))
                    .reduceByKey(Long::sum, partitions)
                    .cache();
            counts.saveAsTextFile(output);
            long digest = counts.map(pair -> Application.digest(pair._1() + " " + pair._2())).reduce(Long::sum);
            return counts.count() + " words " + Long.toHexString(digest);
        });
    }
}
